# The command: build/hark. All but main() is hark_cli, which the tests of the command and of its laboratory are linked with too.

file(GLOB_RECURSE HARK_COMMAND_SOURCES CONFIGURE_DEPENDS src/cli/*.c src/lab/*.c)
list(FILTER HARK_COMMAND_SOURCES EXCLUDE REGEX "/src/cli/main\\.c$")
if(HARK_TRAIN AND HARK_COMMAND_SOURCES)
  # The page of hark report: HTML, CSS and JavaScript, which the command contains.
  set(page_files ${PROJECT_SOURCE_DIR}/src/cli/report/report.html ${PROJECT_SOURCE_DIR}/src/cli/report/report.css
                 ${PROJECT_SOURCE_DIR}/src/cli/report/report.js)
  set(page_source ${PROJECT_BINARY_DIR}/report_page_files.c)
  add_custom_command(
    OUTPUT ${page_source}
    COMMAND ${CMAKE_COMMAND} -DOUT=${page_source} -DHEADER=cli/report/report_page.h "-DFILES=${page_files}" -P
            ${PROJECT_SOURCE_DIR}/cmake/EmbedFiles.cmake
    DEPENDS ${page_files} ${PROJECT_SOURCE_DIR}/cmake/EmbedFiles.cmake
    COMMENT "Writing the page of hark report as C"
    VERBATIM)
  add_library(hark_cli OBJECT ${HARK_COMMAND_SOURCES} ${page_source})
  target_include_directories(hark_cli PRIVATE ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/src)
  target_link_libraries(hark_cli PRIVATE hark_dependencies hark_command_dependencies)
  # The definition alone: the object is linked with the programs.
  target_compile_definitions(hark_cli PRIVATE $<TARGET_PROPERTY:hark_sentencepiece,INTERFACE_COMPILE_DEFINITIONS>)
  add_executable(hark_command src/cli/main.c $<TARGET_OBJECTS:hark_cli>)
  target_include_directories(hark_command PRIVATE ${PROJECT_SOURCE_DIR}/src)
  target_link_libraries(hark_command PRIVATE hark hark_dependencies hark_command_dependencies hark_sentencepiece)
  set_target_properties(hark_command PROPERTIES OUTPUT_NAME hark RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR})
endif()

# The command: build/hark.

file(GLOB HARK_COMMAND_SOURCES CONFIGURE_DEPENDS src/cli/*.c)
if(HARK_TRAIN AND EXISTS ${PROJECT_SOURCE_DIR}/src/cli/main.c)
  add_executable(hark_command ${HARK_COMMAND_SOURCES})
  target_include_directories(hark_command PRIVATE ${PROJECT_SOURCE_DIR}/src)
  target_link_libraries(hark_command PRIVATE hark hark_dependencies)
  set_target_properties(hark_command PROPERTIES OUTPUT_NAME hark RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR})
endif()

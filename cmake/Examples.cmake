# Every examples/*.c is a program that uses the installed headers only.

if(HARK_BUILD_EXAMPLES)
  file(GLOB HARK_EXAMPLE_SOURCES CONFIGURE_DEPENDS examples/*.c)
  foreach(source ${HARK_EXAMPLE_SOURCES})
    get_filename_component(name ${source} NAME_WE)
    add_executable(example_${name} ${source})
    target_link_libraries(example_${name} PRIVATE hark)
    set_target_properties(example_${name} PROPERTIES OUTPUT_NAME ${name} RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/examples)
    if(HARK_TESTS_USED)
      add_test(NAME examples/${name} COMMAND example_${name} WORKING_DIRECTORY ${PROJECT_BINARY_DIR}/examples)
    endif()
  endforeach()
endif()

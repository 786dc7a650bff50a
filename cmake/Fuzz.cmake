# Fuzz targets: every tests/fuzz/fuzz_NAME.c feeds bytes to the readers of files and checks what must hold of the result (docs/testing.md).
#
# With HARK_BUILD_FUZZERS (clang) each becomes a libFuzzer program tests/fuzz/fuzz_NAME; `make fuzz` builds and runs them. With the tests each becomes
# a program that replays files, and the CTest fuzz/NAME, which runs it over the seeds that fuzz_seeds makes: so any compiler covers them.

file(GLOB HARK_FUZZ_TARGETS CONFIGURE_DEPENDS tests/fuzz/fuzz_*.c)
set(HARK_FUZZ_FOLDER ${PROJECT_BINARY_DIR}/tests/fuzz)
# The strings of `hark bench` are read in the layer of the command.
add_library(hark_fuzz_support OBJECT tests/fuzz/support.c tests/support/learner.c src/cli/bench/bench_case.c)
target_include_directories(hark_fuzz_support PRIVATE src tests include)
target_link_libraries(hark_fuzz_support PRIVATE hark_dependencies)

# hark_fuzz_program(TARGET NAME SOURCE...): a program of the library and the targets' support.
function(hark_fuzz_program target name)
  add_executable(${target} ${ARGN} $<TARGET_OBJECTS:hark_fuzz_support>)
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/tests)
  target_link_libraries(${target} PRIVATE hark hark_dependencies)
  set_target_properties(${target} PROPERTIES OUTPUT_NAME ${name} RUNTIME_OUTPUT_DIRECTORY ${HARK_FUZZ_FOLDER})
endfunction()

hark_fuzz_program(fuzz_seeds seeds tests/fuzz/seeds.c)
if(HARK_TESTS_USED)
  add_test(NAME fuzz/seeds COMMAND fuzz_seeds ${HARK_FUZZ_FOLDER}/seeds-made)
  set_tests_properties(fuzz/seeds PROPERTIES FIXTURES_SETUP fuzz_seeds)
endif()

set(HARK_FUZZERS fuzz_seeds)
foreach(source ${HARK_FUZZ_TARGETS})
  get_filename_component(name ${source} NAME_WE)
  string(REGEX REPLACE "^fuzz_" "" short ${name})
  if(HARK_BUILD_FUZZERS)
    hark_fuzz_program(${name} ${name} ${source})
    target_link_options(${name} PRIVATE -fsanitize=fuzzer)
    list(APPEND HARK_FUZZERS ${name})
  endif()
  if(HARK_TESTS_USED)
    hark_fuzz_program(replay_${short} replay_${short} ${source} tests/fuzz/replay.c)
    add_test(NAME fuzz/${short} COMMAND replay_${short} ${HARK_FUZZ_FOLDER}/seeds-made/${short})
    set_tests_properties(fuzz/${short} PROPERTIES FIXTURES_REQUIRED fuzz_seeds TIMEOUT ${HARK_TEST_TIMEOUT_SECONDS})
  endif()
endforeach()
if(HARK_BUILD_FUZZERS)
  add_custom_target(fuzzers DEPENDS ${HARK_FUZZERS})
endif()

# Every tests/FOLDER/test_NAME.c is a program, linked with tests/support/*.c, cmocka and the test library, and a CTest named FOLDER/NAME.
# Tests may include internal headers. HARK_COMMAND is the command's path, HARK_SOURCE_DIR the repository's.

set(HARK_TEST_TIMEOUT_SECONDS 300)
if(CMAKE_CROSSCOMPILING_EMULATOR)
  set(HARK_TEST_TIMEOUT_SECONDS 1800)
endif()

file(GLOB HARK_SUPPORT_SOURCES CONFIGURE_DEPENDS tests/support/*.c)
file(GLOB HARK_TEST_SOURCES CONFIGURE_DEPENDS tests/*/test_*.c)
list(FILTER HARK_TEST_SOURCES EXCLUDE REGEX "/tests/support/")
if(HARK_TRAIN)
  file(GLOB sources CONFIGURE_DEPENDS tests/support/train/*.c)
  list(APPEND HARK_SUPPORT_SOURCES ${sources})
else()
  list(FILTER HARK_TEST_SOURCES EXCLUDE REGEX "/tests/((group|json|config|data|train|lab|cli|fault)/|attention/test_spread)") # of layers that are not in the library
endif()

function(hark_test_settings target)
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/tests)
  target_compile_definitions(${target} PRIVATE HARK_SOURCE_DIR="${PROJECT_SOURCE_DIR}" HARK_COMMAND="${PROJECT_BINARY_DIR}/hark")
  target_link_libraries(${target} PRIVATE hark_test hark_dependencies PkgConfig::CMOCKA)
endfunction()

set(HARK_SUPPORT_OBJECTS)
if(HARK_SUPPORT_SOURCES)
  add_library(hark_test_support OBJECT ${HARK_SUPPORT_SOURCES})
  hark_test_settings(hark_test_support)
  # The tests' own definitions and numbers: with sanitizers they would take most of a test's time.
  if(HARK_SANITIZE MATCHES address)
    set(definitions tests/support/attention_definition.c tests/support/attention_hierarchical.c tests/support/attention_compressed.c tests/support/attention_contextual.c tests/support/compare.c tests/support/run.c)
    set_source_files_properties(${definitions} PROPERTIES COMPILE_OPTIONS -fno-sanitize=all)
  endif()
  set(HARK_SUPPORT_OBJECTS $<TARGET_OBJECTS:hark_test_support>)
endif()

# The system calls' shim of tests/fault, once more as a module to be put in front of the command by LD_PRELOAD.
if(HARK_TRAIN)
  add_library(hark_fault_shim MODULE tests/fault/shim.c)
  target_include_directories(hark_fault_shim PRIVATE ${PROJECT_SOURCE_DIR}/tests)
  target_compile_options(hark_fault_shim PRIVATE -fno-sanitize=all)
  target_link_options(hark_fault_shim PRIVATE -fno-sanitize=all)
  target_link_libraries(hark_fault_shim PRIVATE ${CMAKE_DL_LIBS})
  set_target_properties(hark_fault_shim PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests/fault)
endif()

foreach(source ${HARK_TEST_SOURCES})
  get_filename_component(name ${source} NAME_WE)
  get_filename_component(folder ${source} DIRECTORY)
  get_filename_component(folder ${folder} NAME)
  string(REGEX REPLACE "^test_" "" short ${name})
  set(target test_${folder}_${short})
  # What stands beside the tests of a folder is theirs: tests/FOLDER/NAME.c is linked with each of them.
  file(GLOB beside CONFIGURE_DEPENDS tests/${folder}/*.c)
  list(FILTER beside EXCLUDE REGEX "/test_[^/]*$")
  add_executable(${target} ${source} ${beside} ${HARK_SUPPORT_OBJECTS})
  hark_test_settings(${target})
  if(folder MATCHES "^(fault|group)$")
    target_compile_definitions(${target} PRIVATE HARK_FAULT_SHIM="$<TARGET_FILE:hark_fault_shim>")
    target_link_libraries(${target} PRIVATE ${CMAKE_DL_LIBS})
    add_dependencies(${target} hark_fault_shim)
  endif()
  if(folder STREQUAL group AND TARGET hark-mpi)
    target_compile_definitions(${target} PRIVATE HARK_MPI_MODULE="$<TARGET_FILE:hark-mpi>" HARK_MPIRUN="${MPIEXEC_EXECUTABLE}")
    add_dependencies(${target} hark-mpi)
  endif()
  if(folder MATCHES "^(cli|lab)$" AND TARGET hark_cli)
    target_sources(${target} PRIVATE $<TARGET_OBJECTS:hark_cli>)
    target_link_libraries(${target} PRIVATE hark_command_dependencies hark_sentencepiece)
  endif()
  set_target_properties(${target} PROPERTIES OUTPUT_NAME ${name} RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests/${folder})
  if(TARGET hark_command)
    add_dependencies(${target} hark_command)
  endif()
  add_test(NAME ${folder}/${short} COMMAND ${target} WORKING_DIRECTORY ${PROJECT_BINARY_DIR}/tests/${folder})
  # A filter that is left in somebody's environment must not leave out tests here.
  set_tests_properties(${folder}/${short} PROPERTIES TIMEOUT ${HARK_TEST_TIMEOUT_SECONDS} ENVIRONMENT_MODIFICATION "HARK_TEST=unset:")
endforeach()

# Where tests run side by side these begin first, so that none of them is left alone at the end.
foreach(long lab/trained_experiments attention/hierarchical attention/hierarchical_division conformance/conformance cli/table fault/kills fault/disk fault/allocations fault/allocations_files cli/estimate
    models/decoding gradient/gradient)
  if(TEST ${long})
    set_tests_properties(${long} PROPERTIES COST 100)
  endif()
endforeach()

# The program that README.md prints.
set(readme ${PROJECT_BINARY_DIR}/readme/attention.c)
file(MAKE_DIRECTORY ${PROJECT_BINARY_DIR}/readme)
add_custom_command(
  OUTPUT ${readme}
  COMMAND sh ${PROJECT_SOURCE_DIR}/scripts/readme-code.sh ${readme}
  DEPENDS scripts/readme-code.sh README.md
  COMMENT "The program of README.md")
add_executable(readme_program ${readme})
target_link_libraries(readme_program PRIVATE hark)
set_target_properties(readme_program PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/readme)
add_test(NAME examples/readme COMMAND readme_program)
set_tests_properties(examples/readme PROPERTIES PASS_REGULAR_EXPRESSION "^the mean of 0 to 999 is 499\\.")

# Rules of the tree itself. Sanitizers add globals of their own to the library.
add_test(NAME tree/layers COMMAND sh ${PROJECT_SOURCE_DIR}/scripts/check-layers.sh ${PROJECT_BINARY_DIR})
if(NOT HARK_SANITIZE)
  add_test(NAME tree/library COMMAND sh ${PROJECT_SOURCE_DIR}/scripts/check-library.sh $<TARGET_FILE:hark>)
  if(HARK_SHARED)
    add_test(NAME tree/exports COMMAND sh ${PROJECT_SOURCE_DIR}/scripts/check-exports.sh $<TARGET_FILE:hark_shared>)
  endif()
  add_test(NAME tree/subproject COMMAND sh ${PROJECT_SOURCE_DIR}/scripts/check-subproject.sh configure)
  add_test(NAME tree/embedding COMMAND sh ${PROJECT_SOURCE_DIR}/scripts/check-embedding.sh configure)
  if(TARGET hark_command)
    add_test(NAME tree/install COMMAND sh ${PROJECT_SOURCE_DIR}/scripts/check-install.sh ${PROJECT_BINARY_DIR})
  endif()
endif()
if(HARK_TEST_GUIDES AND HARK_TRAIN AND TARGET hark_cli)
  include(Guides)
endif()

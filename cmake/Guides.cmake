# The code in the guides (docs/adding-*.md), compiled with copies of the files that get its rows, linked in front of the library, and run by
# the suites that a newcomer would run; and the commands of docs/tutorial.md.

# A checkout that a guide's example was added to has it in its own suites: the guide is then left out here.

set(HARK_GUIDES ${PROJECT_BINARY_DIR}/guides)
file(GLOB headers CONFIGURE_DEPENDS include/hark/*.h)
file(GLOB guides CONFIGURE_DEPENDS docs/adding-*.md)
set(copies operator/softplus.c option/models/stack.c option/test_residual_scale.c experiment/urn.c backend/plain.c backend/backend/backends.c
    backend/support/setups.c kernel/cauchy.c kernel/support/kernel_expression.c task/make_parity.c task/tests/test_make.c)
list(TRANSFORM copies PREPEND ${HARK_GUIDES}/)
add_custom_command(
  OUTPUT ${HARK_GUIDES}/written
  BYPRODUCTS ${copies}
  COMMAND sh ${PROJECT_SOURCE_DIR}/scripts/guide-code.sh ${HARK_GUIDES}
  COMMAND ${CMAKE_COMMAND} -E touch ${HARK_GUIDES}/written
  DEPENDS scripts/guide-code.sh ${guides} src/positional/leaf.h tests/support/kernel_expression.c src/data/tasks/make.h tests/data/test_make.c
          src/models/network_config.h src/models/model_options.h src/models/stack.c src/lab/lab.h src/backend/backend.h
          src/backend/attention_algorithm.h src/backend/backends.c tests/support/setups.c ${headers}
  WORKING_DIRECTORY ${PROJECT_SOURCE_DIR}
  COMMENT "Code of the guides")
add_custom_target(hark_guide_code DEPENDS ${HARK_GUIDES}/written)
set_source_files_properties(${copies} PROPERTIES GENERATED TRUE)

# hark_guide_objects(NAME FOLDERS SOURCES...): objects that find the copies first.
function(hark_guide_objects name folders)
  add_library(${name} OBJECT ${ARGN})
  target_include_directories(${name} BEFORE PRIVATE ${folders})
  hark_test_settings(${name})
  add_dependencies(${name} hark_guide_code)
endfunction()

# hark_guide_program(NAME OBJECTS SOURCES...)
function(hark_guide_program name objects)
  add_executable(${name} ${ARGN} $<TARGET_OBJECTS:${objects}>)
  hark_test_settings(${name})
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests/guides)
endfunction()

function(hark_guide_test name)
  add_test(NAME guides/${name} COMMAND ${ARGN} WORKING_DIRECTORY ${PROJECT_BINARY_DIR}/tests/guides)
  set_tests_properties(guides/${name} PROPERTIES TIMEOUT ${HARK_TEST_TIMEOUT_SECONDS})
endfunction()

set(support ${HARK_SUPPORT_OBJECTS})

if(NOT EXISTS ${PROJECT_SOURCE_DIR}/src/ops/softplus.c)
  hark_guide_objects(hark_guide_operator ${HARK_GUIDES}/operator/include ${HARK_GUIDES}/operator/softplus.c src/ops/table.c)
  hark_guide_program(guide_gradient hark_guide_operator tests/gradient/test_gradient.c ${support})
  hark_guide_program(guide_conformance hark_guide_operator tests/conformance/test_conformance.c ${support})
  hark_guide_program(guide_operator hark_guide_operator src/cli/main.c $<TARGET_OBJECTS:hark_cli>)
  target_link_libraries(guide_operator PRIVATE hark_command_dependencies hark_sentencepiece)
  hark_guide_test(operator_gradient guide_gradient softplus)
  hark_guide_test(operator_conformance guide_conformance softplus)
  hark_guide_test(operator_bench guide_operator bench operator softplus:odd,257=1048576 --rounds 1)
endif()

if(NOT EXISTS ${PROJECT_SOURCE_DIR}/tests/models/test_residual_scale.c)
  # Another hark_network_config: all that knows its members is compiled again.
  file(GLOB knowing CONFIGURE_DEPENDS src/models/*.c src/train/*.c)
  list(REMOVE_ITEM knowing ${PROJECT_SOURCE_DIR}/src/models/stack.c)
  hark_guide_objects(hark_guide_option ${HARK_GUIDES}/option ${HARK_GUIDES}/option/models/stack.c ${knowing})
  hark_guide_program(guide_option hark_guide_option tests/train/test_model_options.c ${support})
  hark_guide_program(guide_residual_scale hark_guide_option ${HARK_GUIDES}/option/test_residual_scale.c ${support})
  foreach(name guide_option guide_residual_scale)
    target_include_directories(${name} BEFORE PRIVATE ${HARK_GUIDES}/option)
  endforeach()
  hark_guide_test(option_table guide_option)
  hark_guide_test(option_use guide_residual_scale)
endif()

if(NOT EXISTS ${PROJECT_SOURCE_DIR}/src/lab/experiments/urn.c)
  # The experiment's row is seen by the two files that walk over the table.
  hark_guide_objects(hark_guide_experiment ${HARK_GUIDES}/experiment ${HARK_GUIDES}/experiment/urn.c src/lab/lab.c src/cli/lab/lab.c)
  target_link_libraries(hark_guide_experiment PRIVATE hark_command_dependencies)
  hark_guide_program(guide_experiment hark_guide_experiment src/cli/main.c "$<FILTER:$<TARGET_OBJECTS:hark_cli>,EXCLUDE,/(lab|cli)/lab\\.c>")
  target_link_libraries(guide_experiment PRIVATE hark_command_dependencies hark_sentencepiece)
  hark_guide_test(experiment guide_experiment lab urn --quick --strict)
endif()

if(NOT EXISTS ${PROJECT_SOURCE_DIR}/src/backend/plain.c)
  hark_guide_objects(hark_guide_backend ${HARK_GUIDES}/backend ${HARK_GUIDES}/backend/plain.c ${HARK_GUIDES}/backend/backend/backends.c
                     ${HARK_GUIDES}/backend/support/setups.c)
  hark_guide_program(guide_backend hark_guide_backend tests/conformance/test_conformance.c "$<FILTER:${support},EXCLUDE,/support/setups\\.c>")
  hark_guide_test(backend guide_backend relu silu:one attention:plain)
endif()

if(NOT EXISTS ${PROJECT_SOURCE_DIR}/src/positional/leaves/cauchy.c)
  hark_guide_objects(hark_guide_kernel "${HARK_GUIDES}/kernel" ${HARK_GUIDES}/kernel/cauchy.c ${HARK_GUIDES}/kernel/support/kernel_expression.c
                     src/positional/leaves.c)
  foreach(name kernels expressions)
    hark_guide_program(guide_${name} hark_guide_kernel tests/positional/test_${name}.c "$<FILTER:${support},EXCLUDE,/support/kernel_expression\\.c>")
    hark_guide_test(kernel_${name} guide_${name})
  endforeach()
endif()

if(NOT EXISTS ${PROJECT_SOURCE_DIR}/src/data/tasks/make_parity.c)
  hark_guide_objects(hark_guide_task ${HARK_GUIDES}/task ${HARK_GUIDES}/task/make_parity.c src/data/tasks/make.c)
  hark_guide_program(guide_make hark_guide_task ${HARK_GUIDES}/task/tests/test_make.c ${support})
  target_include_directories(guide_make BEFORE PRIVATE ${HARK_GUIDES}/task)
  hark_guide_test(task_make guide_make)
  hark_guide_objects(hark_guide_task_command ${HARK_GUIDES}/task src/cli/data/data.c)
  hark_guide_program(guide_task hark_guide_task_command src/cli/main.c $<TARGET_OBJECTS:hark_guide_task>
                     "$<FILTER:$<TARGET_OBJECTS:hark_cli>,EXCLUDE,/cli/data/data\\.c>")
  target_link_libraries(guide_task PRIVATE hark_command_dependencies hark_sentencepiece)
  hark_guide_test(task_command guide_task data make parity --bits 8 --training 0 --out unused)
  set_tests_properties(guides/task_command PROPERTIES PASS_REGULAR_EXPRESSION "training: 0, expected at least one example")
endif()

add_test(NAME tree/guides COMMAND sh ${PROJECT_SOURCE_DIR}/scripts/check-guides.sh ${HARK_GUIDES})
set_tests_properties(tree/guides PROPERTIES SKIP_RETURN_CODE 77)

# Every command of the tutorial, with fewer steps.
if(HARK_SHARED AND NOT HARK_SANITIZE)
  add_test(NAME guides/tutorial COMMAND sh ${PROJECT_SOURCE_DIR}/scripts/check-tutorial.sh ${PROJECT_BINARY_DIR} 10)
  set_tests_properties(guides/tutorial PROPERTIES SKIP_RETURN_CODE 77 COST 100 TIMEOUT ${HARK_TEST_TIMEOUT_SECONDS})
endif()

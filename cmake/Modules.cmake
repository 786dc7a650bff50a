# hark-mpi.so: the messages of src/group/transport.h by MPI. The command loads it when a launcher has started it, and needs no MPI itself; the
# module contains nothing of libhark.

if(HARK_MPI_USED)
  add_library(hark-mpi MODULE src/modules/mpi.c)
  target_include_directories(hark-mpi PRIVATE ${PROJECT_SOURCE_DIR}/src)
  target_include_directories(hark-mpi SYSTEM PRIVATE ${MPI_C_INCLUDE_DIRS})
  target_link_libraries(hark-mpi PRIVATE MPI::MPI_C)
  set_target_properties(hark-mpi PROPERTIES PREFIX "" C_VISIBILITY_PRESET hidden LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}
                                            INSTALL_RPATH_USE_LINK_PATH ON) # of an MPI in a folder of its own
  if(NOT HARK_SANITIZE) # whose symbols come from the program
    target_link_options(hark-mpi PRIVATE LINKER:-z,defs)
  endif()
endif()

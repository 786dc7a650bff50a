# make install: headers, libraries, the command with its manual pages and completion, and what lets other builds find the library: hark.pc, hark-static.pc
# and the CMake package (targets hark::hark, the shared library where there is one, and hark::hark_static). Rules of the ABI: docs/abi.md.

include(CMakePackageConfigHelpers)

# ---- what programs that link the static library must link besides; the shared library brings its own ----
# HARK_PRIVATE_PACKAGES by pkg-config, HARK_PRIVATE_LIBRARIES by name; folders that the linker would not search come as -L.
set(HARK_PRIVATE_PACKAGES)
set(HARK_PRIVATE_LIBRARIES)
set(HARK_PRIVATE_FOLDERS)

# The folders that the linker searches by itself, without links: /lib may be /usr/lib. What lies deeper, such as /usr/lib/llvm-14/lib with
# clang's OpenMP, is not among them unless the compiler says so.
set(HARK_SEARCHED_FOLDERS)
foreach(folder ${CMAKE_C_IMPLICIT_LINK_DIRECTORIES})
  get_filename_component(real "${folder}" REALPATH)
  list(APPEND HARK_SEARCHED_FOLDERS "${real}")
endforeach()

function(hark_private_library name path)
  get_filename_component(folder "${path}" DIRECTORY)
  get_filename_component(real "${folder}" REALPATH)
  list(APPEND HARK_PRIVATE_LIBRARIES ${name})
  if(NOT real IN_LIST HARK_SEARCHED_FOLDERS)
    list(APPEND HARK_PRIVATE_FOLDERS "${folder}")
  endif()
  set(HARK_PRIVATE_LIBRARIES ${HARK_PRIVATE_LIBRARIES} PARENT_SCOPE)
  set(HARK_PRIVATE_FOLDERS ${HARK_PRIVATE_FOLDERS} PARENT_SCOPE)
endfunction()

if(TARGET PkgConfig::JANSSON)
  list(APPEND HARK_PRIVATE_PACKAGES jansson)
endif()
if(TARGET PkgConfig::YAML)
  list(APPEND HARK_PRIVATE_PACKAGES yaml-0.1)
endif()
if(HARK_PCRE2_USED)
  list(APPEND HARK_PRIVATE_PACKAGES libpcre2-8)
endif()
if(HARK_UTF8PROC_USED)
  list(APPEND HARK_PRIVATE_PACKAGES libutf8proc)
endif()
if(HARK_ZLIB_USED)
  list(APPEND HARK_PRIVATE_PACKAGES zlib)
endif()
if(HARK_LZMA_USED)
  list(APPEND HARK_PRIVATE_PACKAGES liblzma)
endif()
if(HARK_ZSTD_USED)
  list(APPEND HARK_PRIVATE_PACKAGES libzstd)
endif()
if(HARK_PNG_USED)
  list(APPEND HARK_PRIVATE_PACKAGES libpng)
endif()
if(HARK_BZIP2_USED)
  hark_private_library(bz2 ${HARK_BZIP2_LIBRARY})
endif()
if(HARK_ONEDNN_USED)
  hark_private_library(dnnl ${HARK_ONEDNN_LIBRARY})
endif()
if(HARK_OPENMP_USED)
  foreach(name ${OpenMP_C_LIB_NAMES})
    hark_private_library(${name} ${OpenMP_${name}_LIBRARY})
  endforeach()
endif()
if(HARK_THREADS_USED AND CMAKE_THREAD_LIBS_INIT MATCHES "^-l?(pthread.*)$")
  list(APPEND HARK_PRIVATE_LIBRARIES ${CMAKE_MATCH_1})
endif()
list(APPEND HARK_PRIVATE_LIBRARIES m ${CMAKE_DL_LIBS})
list(REMOVE_DUPLICATES HARK_PRIVATE_FOLDERS)

set(HARK_PRIVATE_FLAGS)
foreach(folder ${HARK_PRIVATE_FOLDERS})
  string(APPEND HARK_PRIVATE_FLAGS " -L\"${folder}\"")
endforeach()
foreach(name ${HARK_PRIVATE_LIBRARIES})
  string(APPEND HARK_PRIVATE_FLAGS " -l${name}")
endforeach()
string(STRIP "${HARK_PRIVATE_FLAGS}" HARK_PRIVATE_FLAGS)
list(JOIN HARK_PRIVATE_PACKAGES " " HARK_PRIVATE_PACKAGE_LINE)

# ---- headers and libraries ----
install(DIRECTORY include/hark DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h")

set(static_needs ${HARK_PRIVATE_LIBRARIES})
foreach(package JANSSON YAML PCRE2 UTF8PROC ZLIB LZMA ZSTD PNG)
  if(TARGET PkgConfig::${package})
    list(PREPEND static_needs ${${package}_LIBRARIES})
    list(APPEND HARK_PRIVATE_FOLDERS ${${package}_LIBRARY_DIRS})
  endif()
endforeach()
target_link_libraries(hark INTERFACE "$<INSTALL_INTERFACE:${static_needs}>")
target_link_directories(hark INTERFACE "$<INSTALL_INTERFACE:${HARK_PRIVATE_FOLDERS}>")
set_target_properties(hark PROPERTIES EXPORT_NAME hark_static)
set(libraries hark)
if(HARK_SHARED)
  set_target_properties(hark_shared PROPERTIES EXPORT_NAME hark)
  list(APPEND libraries hark_shared)
endif()
install(TARGETS ${libraries} EXPORT hark-targets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})

# ---- the CMake package ----
set(package_folder ${CMAKE_INSTALL_LIBDIR}/cmake/hark)
install(EXPORT hark-targets NAMESPACE hark:: DESTINATION ${package_folder})
file(WRITE ${PROJECT_BINARY_DIR}/hark-config.cmake "include(\"\${CMAKE_CURRENT_LIST_DIR}/hark-targets.cmake\")
if(NOT TARGET hark::hark) # built without the shared library
  add_library(hark::hark ALIAS hark::hark_static)
endif()
")
# The same rule as the soname's: before 1.0 a minor version may change the interface.
set(compatibility SameMajorVersion)
if(PROJECT_VERSION_MAJOR EQUAL 0)
  set(compatibility SameMinorVersion)
endif()
write_basic_package_version_file(${PROJECT_BINARY_DIR}/hark-config-version.cmake COMPATIBILITY ${compatibility})
install(FILES ${PROJECT_BINARY_DIR}/hark-config.cmake ${PROJECT_BINARY_DIR}/hark-config-version.cmake DESTINATION ${package_folder})

# ---- pkg-config: written when the prefix is known, at installation ----
set(pkgconfig_folder ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
install(CODE "
  set(HARK_VERSION \"${PROJECT_VERSION}\")
  set(HARK_DESCRIPTION \"${PROJECT_DESCRIPTION}\")
  set(HARK_INCLUDE_FOLDER \"${CMAKE_INSTALL_INCLUDEDIR}\")
  set(HARK_LIBRARY_FOLDER \"${CMAKE_INSTALL_LIBDIR}\")
  set(HARK_PRIVATE_PACKAGE_LINE \"${HARK_PRIVATE_PACKAGE_LINE}\")
  set(HARK_PRIVATE_FLAGS [=[${HARK_PRIVATE_FLAGS}]=])
  set(HARK_SHARED ${HARK_SHARED})
  set(HARK_TEMPLATE \"${PROJECT_SOURCE_DIR}/cmake/hark.pc.in\")
  set(HARK_OUTPUT \"${PROJECT_BINARY_DIR}\")
  include(\"${PROJECT_SOURCE_DIR}/cmake/PkgConfigFile.cmake\")
")
install(FILES ${PROJECT_BINARY_DIR}/hark.pc ${PROJECT_BINARY_DIR}/hark-static.pc DESTINATION ${pkgconfig_folder})

# ---- the command, its manual pages and completion: it writes them itself ----
if(TARGET hark_command)
  install(TARGETS hark_command RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
  if(CMAKE_CROSSCOMPILING)
    message(STATUS "cross-compiling: no manual pages, no completion (hark man and hark completion write them on the target)")
  else()
    set(pages ${PROJECT_BINARY_DIR}/man)
    set(completion ${PROJECT_BINARY_DIR}/completion)
    add_custom_command(
      OUTPUT ${pages}/hark.1 ${completion}/hark ${completion}/_hark ${completion}/hark.fish
      COMMAND ${CMAKE_COMMAND} -E rm -rf ${pages}
      COMMAND ${CMAKE_COMMAND} -E make_directory ${completion}
      COMMAND hark_command man --folder ${pages}
      COMMAND hark_command completion bash > ${completion}/hark
      COMMAND hark_command completion zsh > ${completion}/_hark
      COMMAND hark_command completion fish > ${completion}/hark.fish
      DEPENDS hark_command
      COMMENT "Writing manual pages and completion"
      VERBATIM)
    add_custom_target(hark_pages ALL DEPENDS ${pages}/hark.1)
    install(DIRECTORY ${pages}/ DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 FILES_MATCHING PATTERN "*.1")
    install(FILES ${completion}/hark DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
    install(FILES ${completion}/_hark DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions)
    install(FILES ${completion}/hark.fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d)
  endif()
endif()

# ---- what the command loads when a launcher has started it ----
if(TARGET hark-mpi)
  install(TARGETS hark-mpi LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/hark)
endif()

# ---- the Python package (python/pyproject.toml): one component, so that its wheel contains nothing else ----
if(DEFINED SKBUILD AND HARK_SHARED)
  install(PROGRAMS $<TARGET_FILE:hark_shared> DESTINATION . RENAME $<TARGET_SONAME_FILE_NAME:hark_shared> COMPONENT python)
  if(TARGET hark_command)
    install(TARGETS hark_command RUNTIME DESTINATION bin COMPONENT python)
  endif()
  # XLA's headers come with jaxlib, which the build of the package requires (python/pyproject.toml).
  find_package(Python COMPONENTS Interpreter REQUIRED)
  execute_process(COMMAND ${Python_EXECUTABLE} -c "import jaxlib, os; print(os.path.join(os.path.dirname(jaxlib.__file__), 'include'))"
                  OUTPUT_VARIABLE XLA_INCLUDE OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  if(NOT EXISTS "${XLA_INCLUDE}/xla/ffi/api/c_api.h")
    message(WARNING "There is no jaxlib with XLA's headers: the package is built without hark.jax")
    set(XLA_INCLUDE)
  endif()
  add_subdirectory(${PROJECT_SOURCE_DIR}/python/native)
  set_target_properties(hark_python PROPERTIES INSTALL_RPATH "$ORIGIN")
  install(TARGETS hark_python LIBRARY DESTINATION . COMPONENT python)
endif()

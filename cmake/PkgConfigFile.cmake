# Writes hark.pc and hark-static.pc for CMAKE_INSTALL_PREFIX; run by the installation, which sets the HARK_ variables (cmake/Install.cmake).
# hark is the shared library where there is one. hark-static is libhark.a in any case, by its file's name: of -lhark the linker takes the shared
# library when both are there, whatever pkg-config's --static adds.

# Where there is only the static library, its needs are everybody's.
set(public_packages)
set(public_flags)
set(private_packages "${HARK_PRIVATE_PACKAGE_LINE}")
set(private_flags "${HARK_PRIVATE_FLAGS}")
if(NOT HARK_SHARED)
  set(public_packages "${private_packages}")
  set(public_flags " ${private_flags}")
  set(private_packages)
  set(private_flags)
endif()
foreach(folder INCLUDE LIBRARY)
  if(IS_ABSOLUTE "${HARK_${folder}_FOLDER}")
    set(${folder}_path "${HARK_${folder}_FOLDER}")
  else()
    set(${folder}_path "\${prefix}/${HARK_${folder}_FOLDER}")
  endif()
endforeach()
set(name hark)
set(library -lhark)
configure_file("${HARK_TEMPLATE}" "${HARK_OUTPUT}/hark.pc" @ONLY)

set(name hark-static)
set(library -l:libhark.a)
set(public_packages "${HARK_PRIVATE_PACKAGE_LINE}")
set(public_flags " ${HARK_PRIVATE_FLAGS}")
set(private_packages)
set(private_flags)
configure_file("${HARK_TEMPLATE}" "${HARK_OUTPUT}/hark-static.pc" @ONLY)

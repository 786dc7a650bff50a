# make install: headers, libraries and the command.

install(DIRECTORY include/hark DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h")
install(TARGETS hark ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
if(HARK_SHARED)
  install(TARGETS hark_shared LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
endif()
if(TARGET hark_command)
  install(TARGETS hark_command RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()

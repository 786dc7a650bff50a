# objects.txt in the build folder: the objects of the library and the command, one a line, for scripts/check-layers.sh.

set(objects ${HARK_SHARED_OBJECTS})
foreach(target hark_backends hark_guarded_backends hark_sentencepiece_object hark_cli)
  if(TARGET ${target})
    list(APPEND objects $<TARGET_OBJECTS:${target}>)
  endif()
endforeach()
file(GENERATE OUTPUT ${PROJECT_BINARY_DIR}/objects.txt CONTENT "$<JOIN:${objects},\n>\n")

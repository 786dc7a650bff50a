# What was decided, in a few lines.

set(onednn ${HARK_ONEDNN_USED})
if(HARK_ONEDNN_USED)
  set(onednn "${HARK_ONEDNN_VERSION} (${HARK_ONEDNN_LIBRARY})")
endif()
set(tests ${HARK_TESTS_USED})
if(HARK_BUILD_TESTS STREQUAL AUTO AND NOT HARK_TESTS_USED)
  set(tests "OFF, because cmocka is missing (Debian: libcmocka-dev)")
endif()
list(JOIN HARK_ISAS " " isas)
message(STATUS "hark ${PROJECT_VERSION}: ${CMAKE_BUILD_TYPE}, ${CMAKE_C_COMPILER_ID} ${CMAKE_C_COMPILER_VERSION}")
message(STATUS "  training: ${HARK_TRAIN}; oneDNN: ${onednn}; threads: ${HARK_THREADS_USED}; GSL: ${HARK_GSL_USED}; SentencePiece: ${HARK_SENTENCEPIECE_USED}; PCRE2: ${HARK_PCRE2_USED}; utf8proc: ${HARK_UTF8PROC_USED}; zlib: ${HARK_ZLIB_USED}; liblzma: ${HARK_LZMA_USED}; libzstd: ${HARK_ZSTD_USED}; libbz2: ${HARK_BZIP2_USED}; libpng: ${HARK_PNG_USED}; instruction sets: ${isas}; sanitizers: ${HARK_SANITIZE}")
message(STATUS "  tests: ${tests}")

# Writes files as C arrays, in script mode:
#   cmake -DOUT=files.c -DHEADER=cli/report/report_page.h -DFILES="a.html;b.css" -P EmbedFiles.cmake
# gives hark_embedded_a_html[], hark_embedded_b_css[] with a zero byte at their ends. Text is not changed.
set(text "/* Made by the build from files of the source tree. */\n#include \"${HEADER}\"\n")
foreach(file IN LISTS FILES)
  get_filename_component(name ${file} NAME)
  string(MAKE_C_IDENTIFIER ${name} name)
  file(READ ${file} bytes HEX)
  string(REGEX REPLACE "(................................)" "\\1\n  " bytes "${bytes}")
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "'\\\\x\\1'," bytes "${bytes}")
  string(APPEND text "\nconst char hark_embedded_${name}[] = {\n  ${bytes}0};\n")
endforeach()
file(WRITE ${OUT} "${text}")

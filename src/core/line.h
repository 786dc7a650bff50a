/* line.h - cleaning texts from outside for messages. */
#ifndef HARK_CORE_LINE_H
#define HARK_CORE_LINE_H

/* Makes one line of a text: every byte that would end the line or control a terminal (U+0000 to U+001F, U+007F to U+009F) becomes '?'.
 * hark_fail() and hark_log() apply it to their texts. */
void hark_line_clean(char *text);

#endif

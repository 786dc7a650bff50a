/* line.h - texts from outside as they may stand in a message. */
#ifndef HARK_CORE_LINE_H
#define HARK_CORE_LINE_H

/* Makes one line of a text: every byte that would end the line or steer a terminal (U+0000 to U+001F, U+007F to U+009F) becomes '?'.
 * hark_fail() and hark_log() do this to what they are given. */
void hark_line_clean(char *text);

#endif

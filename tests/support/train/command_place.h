/* command_place.h - what tests of the command share: a folder with a text to train on, the words of a run that takes a moment, and commands
 * whose exit code and output are expected to be such and such. */
#ifndef HARK_TESTS_SUPPORT_TRAIN_COMMAND_PLACE_H
#define HARK_TESTS_SUPPORT_TRAIN_COMMAND_PLACE_H

#include <jansson.h>

#include "support/command.h"
#include "support/text_files.h"

/* Flags of hark train; COMMAND_SMALL leaves the number of layers open. */
#define COMMAND_SMALL "--width 16 --heads 2 --context 8 --batch 2 --log-every 1 --threads 1 "
#define COMMAND_TINY "--layers 1 " COMMAND_SMALL

/* Makes a folder with text.txt in it. */
void command_place_open(char folder[TEST_PATH_BYTES]);
void command_place_close(const char *folder, test_output *output);
/* Status, as of system(), of lines of the shell in the folder, which print nowhere. */
int command_place_shell(const char *folder, const char *lines);

/* 4,000 bytes of these words, again and again, never quite the same. */
void command_text_make(const char *folder, const char *name, const char *words);

/* Runs "hark WORDS" in the folder. The test fails unless it ends with `code` and the parts are found in its stdout and stderr. */
void command_expect(const char *folder, const char *words, int code, const char *in_out, const char *in_err, test_output *output);

/* stdout as JSON, of which it must be one line; for json_decref(). */
json_t *command_json(const test_output *output);

/* A number of an object; the test fails where there is none. */
double command_number(const json_t *object, const char *key);

#endif

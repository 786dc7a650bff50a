/* flags.h - common flags of a test followed by those of a case: the last one counts. hark itself refuses a flag that is given twice. */
#ifndef HARK_TESTS_FLAGS_H
#define HARK_TESTS_FLAGS_H

/* Drops words "--name=value" whose flag comes again later; returns how many are left. */
int test_flags_settle(const char **words, int count);

/* The same in the text of a command, " --name value" or " --name=value", for train and bench; lists stay as they are. */
void test_flags_settle_text(char *text);

#endif

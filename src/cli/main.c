/* main.c - the program hark. Everything is in the functions around it, so that tests can call it without a process. */
#include "cli/commands.h"

int main(int count, char **arguments) { return hark_main(count, (const char *const *)arguments); }

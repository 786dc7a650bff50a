/* commands.h - the table of subcommands, in the order of hark --help, and the hark command around them.
 *
 * Adding a subcommand: one file, one row. Help, manual page, completion and the tests of all options follow.
 */
#ifndef HARK_CLI_COMMANDS_H
#define HARK_CLI_COMMANDS_H

#include "cli/common.h"

#define HARK_COMMANDS(X)                                                                                                                   \
  X(train)                                                                                                                                 \
  X(generate)                                                                                                                              \
  X(export)                                                                                                                                \
  X(import)                                                                                                                                \
  X(sweep)                                                                                                                                 \
  X(embed)                                                                                                                                 \
  X(eval)                                                                                                                                  \
  X(predict)                                                                                                                               \
  X(verify)                                                                                                                                \
  X(data)                                                                                                                                  \
  X(tokenize)                                                                                                                              \
  X(detokenize)                                                                                                                            \
  X(lab)                                                                                                                                   \
  X(attend)                                                                                                                                \
  X(positional)                                                                                                                            \
  X(kernels)                                                                                                                               \
  X(runs)                                                                                                                                  \
  X(report)                                                                                                                                \
  X(inspect)                                                                                                                               \
  X(info)                                                                                                                                  \
  X(plot)                                                                                                                                  \
  X(bench)                                                                                                                                 \
  X(config)                                                                                                                                \
  X(man)                                                                                                                                   \
  X(completion)                                                                                                                            \
  X(version)

#define HARK_COMMAND_DECLARE(name) extern const hark_command hark_command_##name;
HARK_COMMANDS(HARK_COMMAND_DECLARE)
#undef HARK_COMMAND_DECLARE

/* "train|generate|...|": the names as choices of an argument. */
#define HARK_COMMAND_WORD(name) #name "|"
#define HARK_COMMAND_WORDS HARK_COMMANDS(HARK_COMMAND_WORD)

/* The rows, ended by NULL. */
extern const hark_command *const hark_commands[];
const hark_command *hark_command_find(const char *name); /* NULL: none */

/* The whole command: words[0] is the program. Returns the exit code. */
int hark_main(int count, const char *const *words);

/* Makes a call of a subcommand with all its options at their defaults: its own tables and those that every subcommand has. `base` is kept
 * as the call's context. The caller ends *call also after a failure. */
HARK_MUST_CHECK hark_status hark_call_begin(hark_context *base, const hark_command *command, hark_invocation *call);
void hark_call_end(hark_context *base, hark_invocation *call);

#endif

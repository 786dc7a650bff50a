/* commands.h - the table of subcommands, in the order of hark --help. Adding one: one file, one row. */
#ifndef HARK_CLI_COMMANDS_H
#define HARK_CLI_COMMANDS_H

#include "cli/common.h"

#define HARK_COMMANDS(X)                                                                                                                   \
  X(train)                                                                                                                                 \
  X(generate)                                                                                                                              \
  X(eval)                                                                                                                                  \
  X(attend)                                                                                                                                \
  X(positional)                                                                                                                            \
  X(info)                                                                                                                                  \
  X(plot)                                                                                                                                  \
  X(bench)                                                                                                                                 \
  X(config)                                                                                                                                \
  X(version)

#define HARK_COMMAND_DECLARE(name) extern const hark_command hark_command_##name;
HARK_COMMANDS(HARK_COMMAND_DECLARE)
#undef HARK_COMMAND_DECLARE

#endif

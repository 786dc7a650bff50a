#!/bin/sh
# Writes what the guides (docs/adding-*.md) add, so that the tests can compile and run it: guide-code.sh FOLDER
#   FOLDER/operator, option, experiment, backend, kernel, task: the files of each guide, and copies of those that it adds rows to.
# Every piece is taken from its guide by its first line; one that is not there, or whose place is not, fails. A guide whose example is part of
# this checkout is left out.
set -eu
case $1 in
  /*) out=$1 ;;
  *) out=$PWD/$1 ;;
esac
cd "$(dirname "$0")/.."

# block GUIDE FIRST: the indented block that begins with FIRST, up to the next line that is not indented.
block() {
  awk -v first="    $2" '
    !on && index($0, first) == 1 { on = 1 }
    on && $0 != "" && $0 !~ /^    / { exit }
    on { lines[++count] = substr($0, 5) }
    END {
      while (count > 0 && lines[count] == "") count--
      if (count == 0) exit 1
      for (i = 1; i <= count; i++) print lines[i]
    }' "docs/$1" || { echo "docs/$1: no block that begins with: $2" >&2; exit 1; }
}

# said GUIDE TEXT: the guide says to write that.
said() { grep -qF -- "$2" "docs/$1" || { echo "docs/$1 does not say: $2" >&2; exit 1; }; }

# row FILE MACRO ROW: one more row at the end of a macro that is a list.
row() {
  awk -v name="#define $2(" -v row="  $3" '
    index($0, name) == 1 { on = 1 }
    on && $0 !~ /\\$/ { printf "%-139s\\\n%s\n", $0, row; on = 0; done = 1; next }
    { print }
    END { exit !done }' "$1" >"$1.new" || { echo "$1: no list $2" >&2; exit 1; }
  mv "$1.new" "$1"
}

# after FILE LINE: the standard input after the line that has this text.
after() {
  text=$(cat)
  TEXT=$text awk -v line="$2" '{ print } index($0, line) > 0 && !done { print ENVIRON["TEXT"]; done = 1 } END { exit !done }' "$1" >"$1.new" || {
    echo "$1: no line with: $2" >&2
    exit 1
  }
  mv "$1.new" "$1"
}

# before FILE LINE: the standard input before the line that has this text.
before() {
  text=$(cat)
  TEXT=$text awk -v line="$2" 'index($0, line) > 0 && !done { print ENVIRON["TEXT"]; done = 1 } { print } END { exit !done }' "$1" >"$1.new" || {
    echo "$1: no line with: $2" >&2
    exit 1
  }
  mv "$1.new" "$1"
}

# continued: lines that end with a backslash, with it in its column.
continued() { sed 's/ *\\$//' | while IFS= read -r line; do printf '%-139s\\\n' "$line"; done; }

# added FILE: this checkout has the guide's example already.
added() { [ -e "$1" ]; }

rm -rf "$out"
mkdir -p "$out/kernel/positional" "$out/kernel/support" "$out/task/data/tasks" "$out/task/tests" "$out/operator/include/hark" "$out/option/models" "$out/experiment/lab" "$out/backend/backend" "$out/backend/support"

if ! added src/ops/softplus.c; then
  guide=adding-an-operator.md
  cp include/hark/*.h "$out/operator/include/hark/"
  said $guide 'X(softplus)'
  row "$out/operator/include/hark/operators.h" HARK_OPERATORS 'X(softplus)'
  { echo && block $guide '/* softplus: '; } | after "$out/operator/include/hark/operators.h" 'HARK_OPERATORS(HARK_OPERATOR_DECLARE)'
  block $guide '/* softplus.c' >"$out/operator/softplus.c"
fi

if ! added tests/models/test_residual_scale.c; then
  guide=adding-a-model-option.md
  cp src/models/network_config.h src/models/model_options.h src/models/stack.c "$out/option/models/"
  block $guide 'double residual_scale;' | sed 's/^/  /' | after "$out/option/models/network_config.h" '  double embedding_deviation;'
  block $guide '  X(residual_scale' | continued | before "$out/option/models/model_options.h" '  X(rotary.base,'
  { block $guide 'static hark_status scale_branch' && echo; } | before "$out/option/models/stack.c" '/* What happens to a branch'
  use='HARK_TRY(scale_branch(closure->network, forward, branch));'
  said $guide "\`$use\`"
  echo "  $use" | after "$out/option/models/stack.c" 'closure->layer, place, branch));'
  block $guide '/* test_residual_scale.c' >"$out/option/test_residual_scale.c"
fi

if ! added src/lab/experiments/urn.c; then
  guide=adding-an-experiment.md
  cp src/lab/lab.h "$out/experiment/lab/"
  said $guide 'X(urn, "urn", NULL)'
  row "$out/experiment/lab/lab.h" HARK_EXPERIMENTS 'X(urn, "urn", NULL)'
  block $guide '/* urn.c' >"$out/experiment/urn.c"
fi

if ! added src/backend/plain.c; then
  guide=adding-a-backend.md
  cp src/backend/backend.h src/backend/attention_algorithm.h src/backend/backends.c "$out/backend/backend/"
  cp tests/support/setups.c "$out/backend/support/"
  block $guide 'extern const hark_backend ' | after "$out/backend/backend/backend.h" 'extern const hark_backend hark_backend_cpu'
  # shellcheck disable=SC2016 # the quotes are the guide's
  said $guide '`&hark_backend_plain,`'
  echo '    &hark_backend_plain,' | after "$out/backend/backend/backends.c" '&hark_backend_reference,'
  # shellcheck disable=SC2016
  said $guide '`{"plain", "portable"},`'
  echo '    {"plain", "portable"},' | after "$out/backend/support/setups.c" 'candidates[] = {'
  block $guide '/* plain.c' >"$out/backend/plain.c"
fi

if ! added src/positional/leaves/cauchy.c; then
  guide=adding-a-positional-kernel.md
  cp src/positional/leaf.h "$out/kernel/positional/"
  cp tests/support/kernel_expression.c "$out/kernel/support/"
  said $guide 'X(cauchy)'
  row "$out/kernel/positional/leaf.h" HARK_LEAVES 'X(cauchy)'
  block $guide '  if (strcmp(name, "cauchy")' | before "$out/kernel/support/kernel_expression.c" 'strcmp(name, "alibi")'
  block $guide '/* cauchy.c' >"$out/kernel/cauchy.c"
fi

if ! added src/data/tasks/make_parity.c; then
  guide=adding-a-task.md
  cp src/data/tasks/make.h "$out/task/data/tasks/"
  cp tests/data/test_make.c "$out/task/tests/"
  said $guide 'X(parity, "parity", 12, parity)'
  row "$out/task/data/tasks/make.h" HARK_TASK_GENERATORS 'X(parity, "parity", 12, parity)'
  block $guide '    {.name = "parity"' | after "$out/task/tests/test_make.c" '    {.name = "periodic-text", .seed = 1,'
  block $guide '/* make_parity.c' >"$out/task/make_parity.c"
fi

#!/bin/sh
# How hierarchical attention grows with the length, alone and at equal tokens (as many sequences of two heads as make 2^18 rows, so that
# operands come from memory at every length), where it overtakes dense attention, and what a second thread brings to one head:
# scaling.sh BUILD [CASE...], a case being the words of hark bench after the length (default: those of docs/notes/hierarchical.md). HEADS is
# the number of heads (8, which takes 6 GB of memory at 2^18 rows). Lengths are measured in turn, ROUNDS times (3), and the least times of
# all rounds count, so that a slow minute of the machine does not affect one length only.
set -eu
build=${1:-build}
[ $# -eq 0 ] || shift
hark=$build/hark
[ $# -gt 0 ] || set -- N16,mean N16,first,causal N16,exact,causal

heads=${HEADS:-8}
rounds=${ROUNDS:-3}

# One line of numbers: length, least ms of forward and backward, GFLOP counted, MiB held in all, MiB of workspace.
measure() { # case, length, further options...
  case=$1
  length=$2
  shift 2
  "$hark" bench attention "$case" --json "$@" | awk -v rows="$length" -F '[:,]' '{
    for (i = 1; i < NF; i++) if ($i ~ /^"[a-z_]+"$/) { name = $i; gsub(/"/, "", name); v[name] = $(i + 1) }
    ms = v["forward_min_ms"] + v["backward_min_ms"]
    operations = (v["forward_ms"] * v["forward_gflops"] + v["backward_ms"] * v["backward_gflops"]) / 1e3
    printf "%d %.4f %.6f %.3f %.3f\n", rows, ms, operations, (v["tensor_bytes"] + v["workspace_bytes"]) / 1048576, v["workspace_bytes"] / 1048576
  }'
}

# The least time of every length, and the least of dense attention (field 6, may be absent), in their order.
least() {
  awk '
    !($1 in best) { order[++n] = $1; operations[$1] = $3; held[$1] = $4; workspace[$1] = $5 }
    !($1 in best) || $2 < best[$1] { best[$1] = $2 }
    $6 != "" && (!($1 in dense) || $6 < dense[$1]) { dense[$1] = $6 }
    END { for (i = 1; i <= n; i++) print order[i], best[order[i]], operations[order[i]], held[order[i]], workspace[order[i]], dense[order[i]] }'
}

# Long enough for the clock; few times of what takes seconds.
patience() { if [ "$1" -ge 65536 ]; then echo "--rounds 3"; else echo "--seconds 0.5"; fi; }

for words in "$@"; do
  causal=
  case ",$words," in *,causal,*) causal=,causal ;; esac
  echo "hierarchical:B1,H$heads,L...,D64,$words"
  echo "  length         ms  ms a GFLOP   MiB held  workspace   dense ms"
  round=0
  while [ $round -lt "$rounds" ]; do
    for power in 7 8 9 10 11 12 13 14 15 16 17 18; do
      length=$((1 << power))
      # shellcheck disable=SC2046 # two words
      line=$(measure "hierarchical:B1,H$heads,L$length,D64,$words" "$length" $(patience "$length"))
      dense=
      [ "$power" -gt 12 ] || dense=$(measure "dense:B1,H$heads,L$length,D64$causal" "$length" --seconds 0.5 | cut -d ' ' -f 2)
      echo "$line $dense"
    done
    round=$((round + 1))
  done | least | awk '{
    printf "%8d %10.2f %11.3f %10.1f %10.1f %10s\n", $1, $2, $2 / $3, $4, $5, $6 == "" ? "" : sprintf("%.2f", $6)
    a = $2 / $3
    if ($6 != "" && $2 >= $6) crossing = ""
    else if ($6 != "" && crossing == "") crossing = $1
    if ($1 < 1024) next
    if (!count || a < least) least = a
    if (a > most) most = a
    if (!count++) { first = $1; memory = $4 }
    sum += log(a)
    last = $1; held = $4
  } END {
    middle = exp(sum / count)
    printf "  from %d rows on: time over counted operations most / least %.2f, all within %.0f %% of their geometric mean;  slope of memory %.3f\n",
      first, most / least, 100 * (most / middle > middle / least ? most / middle - 1 : middle / least - 1), log(held / memory) / log(last / first)
    printf "  ahead of dense attention from length %s\n", crossing
  }'
done

echo "equal tokens, hierarchical:B...,H2,L...,D64 with B x L = 2^18: milliseconds a GFLOP"
for words in "$@"; do
  round=0
  while [ $round -lt "$rounds" ]; do
    for power in 10 12 14 16 18; do
      measure "hierarchical:B$((1 << (18 - power))),H2,L$((1 << power)),D64,$words" $((1 << power)) --rounds 3
    done
    round=$((round + 1))
  done | least | awk -v words="$words" '{
    a = $2 / $3
    line = line sprintf(" %9.3f", a)
    if (NR == 1 || a < least) least = a
    if (a > most) most = a
  } END { printf "  %-20s%s   most / least %.2f\n", words, line, most / least }'
done

echo "one head, L16384: milliseconds with one thread and with two"
for words in "$@"; do
  case="hierarchical:B1,H1,L16384,D64,$words"
  one=$(measure "$case" 16384 --threads 1 | cut -d ' ' -f 2)
  two=$(measure "$case" 16384 --threads 2 | cut -d ' ' -f 2)
  awk -v words="$words" -v one="$one" -v two="$two" 'BEGIN { printf "  %-20s %8.2f %8.2f  %.2f x\n", words, one, two, one / two }'
done

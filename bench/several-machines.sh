#!/bin/sh
# Training by several processes over a slow network, on one machine: several-machines.sh BUILD [RANKS...]   (default: 2)
#
# 1. What two processes of one thread cost over one process of two threads, in turn.
# 2. For each number of ranks: a step of one-thread processes in network namespaces of their own, each with a link of RATE bits per second
#    (1e9) and DELAY seconds in each direction (0.005); how much of the exchange of gradients the backward hides; and what the formula below
#    predicts from the first number of ranks.
# 3. What the formula predicts for 64 machines of 16 cores with links of 25 Gbit/s.
#
#     step(n) = most(n) m + u + max(t X(n), X(n) - h m),      X(n) = bytes(n) / W + 2 D rounds(n) / 16
#
# n: processes; most(n): micro-batches of the busiest one; m: seconds of a micro-batch, times the processes per core where cores are shared;
# u: of the optimiser; bytes(n): sent by one process; W: bytes per second of a link; D: its delay; h: the part of a micro-batch that can
# hide an exchange; t: the part of the exchange that is final too late to be hidden. m, u, W, h and t are measured.
#
# Needs Linux, root, iproute2 and Open MPI; for a delay the queueing discipline netem or else /dev/net/tun and cc (slow_link.c).
# ACCUMULATE (4) micro-batches of BATCH (4) windows; ROUNDS (3) steps.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
build=$(cd "${1:-build}" && pwd)
[ $# -eq 0 ] || shift
[ $# -gt 0 ] || set -- 2
hark=$build/hark
rate=${RATE:-1e9}
delay=${DELAY:-0.005}
accumulate=${ACCUMULATE:-4}
model="--layers 4 --heads 4 --width 512 --context 256 --vocabulary 256 --positions rotary --batch ${BATCH:-4}"
rounds=${ROUNDS:-3}
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 PRTE_ALLOW_RUN_AS_ROOT=1 PRTE_ALLOW_RUN_AS_ROOT_CONFIRM=1

refuse() {
  echo "several-machines.sh: $*" >&2
  exit 1
}
[ -x "$hark" ] || refuse "$hark is not there: build hark first"
command -v mpirun > /dev/null || refuse "mpirun is not there (Debian: openmpi-bin)"

# A number of one line of JSON.
number() { sed -n "s/.*\"$1\": *\\([-0-9.eE+]*\\).*/\\1/p"; }

# ---- one process of two threads, two of one ----

# shellcheck disable=SC2086 # the model is words
step() { # threads, command...
  threads=$1
  shift
  "$@" "$hark" bench step $model --accumulate "$accumulate" --rounds "$rounds" --threads "$threads" --json
}

cost() {
  one=
  two=
  for _ in 1 2 3; do
    one="$one $(step 2 env | number step_min_ms)"
    two="$two $(step 1 mpirun --bind-to none --oversubscribe -n 2 | number step_min_ms)"
  done
  echo "$one /$two" | awk -F/ '{
    split($1, a, " "); split($2, b, " "); least = a[1]; least2 = b[1]
    for (i in a) if (a[i] < least) least = a[i]
    for (i in b) if (b[i] < least2) least2 = b[i]
    printf "cost: two processes of one thread %.1f ms, one of two threads %.1f ms: %.3f\n", least2, least, least2 / least
  }'
}

# ---- machines: namespaces hark-bench-N with hosts hkmN, 10.77.0.N+1 ----

scratch=$(mktemp -d)
network=
link=

close_network() {
  if [ -n "$link" ]; then
    kill "$link" 2> /dev/null || true
    wait "$link" 2> /dev/null || true
  fi
  link=
  for name in $network; do
    ip netns del "$name" 2> /dev/null || true
    rm -rf "/etc/netns/$name"
  done
  network=
}
trap 'close_network; rm -rf "$scratch"' EXIT
trap 'exit 1' INT TERM

check_network() {
  [ "$(id -u)" = 0 ] || refuse "network namespaces need root"
  command -v ip > /dev/null || refuse "ip is not there (Debian: iproute2)"
  command -v tc > /dev/null || refuse "tc is not there (Debian: iproute2)"
  ip netns del hark-bench-try 2> /dev/null || true # of a call that was interrupted
  ip netns add hark-bench-try 2> "$scratch/error" || refuse "network namespaces are not allowed here: $(cat "$scratch/error")"
  netem=no
  if ip netns exec hark-bench-try tc qdisc add dev lo root netem delay 1ms 2> /dev/null; then netem=yes; fi
  ip netns del hark-bench-try
  [ $netem = no ] || return 0
  [ -c /dev/net/tun ] || refuse "this kernel has neither netem nor /dev/net/tun: a link cannot be slow"
  cc -O2 -o "$scratch/slow_link" "$here/slow_link.c" || refuse "slow_link.c does not compile"
}

# A bridge with a pair of devices for each machine; both ends send at the rate, after the delay.
open_with_netem() { # machines, rate
  ip netns add hark-bench-hub
  network="$network hark-bench-hub"
  ip -n hark-bench-hub link add hub type bridge
  ip -n hark-bench-hub link set hub mtu 9000 up
  for i in $(seq 0 $(($1 - 1))); do
    ip link add hkl"$i" netns hark-bench-"$i" type veth peer name port"$i" netns hark-bench-hub
    ip -n hark-bench-hub link set port"$i" mtu 9000 master hub up
    ip netns exec hark-bench-hub tc qdisc add dev port"$i" root netem rate "$(printf %.0f "$2")"bit limit 10000
    ip netns exec hark-bench-"$i" tc qdisc add dev hkl"$i" root netem delay "$(awk "BEGIN { print $delay * 1e3 }")"ms rate "$(printf %.0f "$2")"bit limit 10000
  done
}

open_with_switch() { # machines, rate
  rm -f "$scratch/ready"
  "$scratch/slow_link" hkl "$1" "$2" "$delay" > "$scratch/ready" &
  link=$!
  until [ -s "$scratch/ready" ]; do
    kill -0 "$link" 2> /dev/null || refuse "slow_link has ended"
    sleep 0.05
  done
  for i in $(seq 0 $(($1 - 1))); do ip link set hkl"$i" netns hark-bench-"$i"; done
}

open_network() { # machines, rate
  for i in $(seq 0 $(($1 - 1))); do
    ip netns add hark-bench-"$i"
    network="$network hark-bench-$i"
    mkdir -p /etc/netns/hark-bench-"$i"
    { echo "127.0.0.1 localhost"; seq 0 $(($1 - 1)) | awk '{ print "10.77.0." $1 + 1, "hkm" $1 }'; } > /etc/netns/hark-bench-"$i"/hosts
  done
  if [ $netem = yes ]; then open_with_netem "$@"; else open_with_switch "$@"; fi
  for i in $(seq 0 $(($1 - 1))); do
    ip -n hark-bench-"$i" link set lo up
    ip -n hark-bench-"$i" addr add 10.77.0.$((i + 1))/24 dev hkl"$i"
    ip -n hark-bench-"$i" link set hkl"$i" mtu 9000 up
  done
}

# What mpirun calls in place of ssh: HOST COMMAND..., with the host's network and name.
cat > "$scratch/agent" << 'AGENT'
#!/bin/sh
host=$1
shift
exec ip netns exec "hark-bench-${host#hkm}" unshare --uts sh -c "echo $host > /proc/sys/kernel/hostname; $*"
AGENT
chmod +x "$scratch/agent"

# A step on `machines` machines, as JSON of rank 0.
# shellcheck disable=SC2086 # the model is words
step_on() { # machines
  hosts=$(seq 0 $(($1 - 1)) | sed 's/.*/hkm&:1/' | paste -sd, -)
  "$scratch/agent" hkm0 mpirun --host "$hosts" -n "$1" --bind-to none --oversubscribe --mca plm_rsh_agent "$scratch/agent" \
    --mca btl tcp,self --mca btl_tcp_if_include 10.77.0.0/24 --mca oob_tcp_if_include 10.77.0.0/24 \
    "$hark" bench step $model --accumulate "$accumulate" --rounds "$rounds" --threads 1 --json
}

# machines, bits per second -> "machines rate step micro-batch update bytes exchange unhidden", in seconds
measure() {
  open_network "$1" "$2"
  step_on "$1" > "$scratch/json" 2> "$scratch/error" || refuse "$1 machines: $(tail -3 "$scratch/error")"
  close_network
  for name in step_ms micro_batch_ms update_ms sent_bytes exchange_ms unhidden_ms parameters; do
    echo "$name=$(number $name < "$scratch/json")"
  done > "$scratch/values"
  awk -F= -v n="$1" -v rate="$2" '{ v[$1] = $2 }
    END { print n, rate, v["step_ms"] / 1e3, v["micro_batch_ms"] / 1e3, v["update_ms"] / 1e3, v["sent_bytes"], v["exchange_ms"] / 1e3, v["unhidden_ms"] / 1e3, v["parameters"] }' \
    "$scratch/values"
}

# ---- the formula ----

# Lines of measure(): the first two, of one number of machines with two rates, are what the formula has its numbers from.
cat > "$scratch/formula.awk" << 'AWK'
function ceil(x) { return x == int(x) ? x : int(x) + 1 }
function max(a, b) { return a > b ? a : b }
function min(a, b) { return a < b ? a : b }
# Complete subtrees of micro-batches [first, end) (gradient_sum.h).
function subtrees(first, end,   size, number) {
  for (number = 0; first < end; first += size) {
    for (size = 1; first % (2 * size) == 0 && first + 2 * size <= end; size *= 2);
    number++
  }
  return number
}
# Bytes that the busiest process sends or receives.
function bytes(n, accumulate,   r, own, all, most) {
  for (r = all = 0; r < n; r++) all += own[r] = subtrees(int(accumulate * r / n), int(accumulate * (r + 1) / n))
  for (r = most = 0; r < n; r++) most = max(most, max(own[r] * (n - 1), all - own[r]) + n - 1)
  return n > 1 ? most / n * 4 * parameters : 0
}
function rounds(n,   piece) {
  piece = min(131072, max(8192, ceil(parameters / n / 32)))
  return ceil(parameters / n / piece)
}
function exchange(n, accumulate, width, delay) { return n > 1 ? bytes(n, accumulate) / width + 2 * delay * ceil(rounds(n) / 16) : 0 }
function step(n, accumulate, m, u, x) { return ceil(accumulate / n) * m + u + max(late * x, x - hides * m) }
{ parameters = $9; lines[NR] = $0 }
NR == 1 { m = $4 / max(1, $1 / cores); u = $5; late = $8 / $7 }
NR == 2 { hides = max(0, ($7 - $8) / $4) }
NR <= 2 { width[NR] = bytes($1, accumulate) / max(1e-9, $7 - 2 * delay * ceil(rounds($1) / 16)) }
function show(line,   f, n, predicted) {
  split(lines[line], f, " ")
  n = f[1]
  predicted = step(n, accumulate, m * max(1, n / cores), u, exchange(n, accumulate, width[line == 2 ? 2 : 1], delay))
  printf "  %d machines, %4.0f Mbit/s: sent %5.1f MB; exchange alone %6.1f ms, not hidden %6.1f ms (%3.0f %% hidden); step %7.1f ms, predicted %7.1f (%+.0f %%)%s\n",
    n, f[2] * 1e-6, f[6] * 1e-6, f[7] * 1e3, f[8] * 1e3, 100 * max(0, 1 - f[8] / f[7]), f[3] * 1e3, predicted * 1e3, 100 * (predicted / f[3] - 1),
    line <= 2 ? "; measured for the formula" : ""
}
END {
  printf "  one micro-batch %.1f ms, update %.1f ms; %.1f MB/s of %.1f; of the exchange %.2f ends late, a micro-batch hides %.2f of its time\n",
    m * 1e3, u * 1e3, width[1] * 1e-6, 1e-6 * rate / 8, late, hides
  for (line = 1; line <= NR; line++) show(line)
  many = 64
  x = exchange(many, many, 25e9 / 8 * width[1] / (rate / 8), 5e-5)
  for (windows = 4; windows <= 64; windows *= 4) {
    fast = m * windows / batch / 16
    one = many * fast + u
    all = step(many, many, fast, u, x)
    printf "  64 machines of 16 cores, 25 Gbit/s, 64 x %d windows: step %.1f ms, %.0f %% of 64 times the speed of one (exchange alone %.1f ms)\n",
      windows, all * 1e3, 100 * one / all / many, x * 1e3
  }
}
AWK

check_network
cost
echo "several machines ($(nproc) cores; delay $delay s by $([ $netem = yes ] && echo netem || echo slow_link)):"
{
  measure "$1" "$rate"
  measure "$1" "$(awk "BEGIN { print $rate / 8 }")"
  shift
  for n in "$@"; do measure "$n" "$rate"; done
} > "$scratch/lines"
awk -v accumulate="$accumulate" -v cores="$(nproc)" -v rate="$rate" -v delay="$delay" -v batch="${BATCH:-4}" -f "$scratch/formula.awk" "$scratch/lines"

#!/bin/sh
# The machine, attention, the products of a layer, and the training step of docs/notes: run.sh BUILD [--json]
set -eu
build=${1:-build}
[ $# -eq 0 ] || shift
hark=$build/hark

"$hark" bench machine "$@"
"$hark" bench attention \
  dense:B1,H8,L4096,D64 dense:B1,H8,L4096,D64,causal \
  dense:B1,H8,L1024,D64 dense:B1,H8,L8192,D64 dense:B1,H8,L4001,D64 dense:B1,H8,L4001,D64,causal \
  dense:B1,H8,L4096,D32 dense:B1,H8,L4096,D80 dense:B1,H8,L4096,D128 \
  dense:B1,H8,L4096,D32,causal dense:B1,H8,L4096,D80,causal dense:B1,H8,L4096,D128,causal \
  dense:B1,H8,K2,L4096,D64,causal window:B1,H8,L4096,D64,window=256,causal dense:B16,H4,L256,D128,causal,packed "$@"
"$hark" bench operator linear:M4096,N512,K512 linear:M4096,N2048,K512 linear:M4096,N512,K2048 "$@"
"$hark" bench step --layers 4 --heads 4 --width 512 --context 256 --batch 16 --positions rotary "$@"

#!/bin/sh
mkdir -p out
echo "no part of what is handed in" >left-over
awk '{ sum += $1 } END { print sum }' numbers.txt >out/sum.txt

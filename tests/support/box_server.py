"""A web server inside a box, for the tests of a port's address."""

from __future__ import annotations

# It takes a port that is free and says which: a number made up here could be another test's, or an outgoing connection's.
SERVING = """
echo hello >index.html
: >served
python3 -u -m http.server 0 --bind 127.0.0.1 >served 2>&1 &
for n in $(seq 200); do
    port=$(sed -n 's/.* port \\([0-9][0-9]*\\).*/\\1/p' served)
    if [ -n "$port" ]; then break; fi
    sleep 0.1
done
echo "$port"
"""

#!/bin/sh
printf '#!/bin/sh\necho $((2 * $1))\n' >double.sh

#!/bin/sh
[ "$(sh double.sh 4)" = 8 ]

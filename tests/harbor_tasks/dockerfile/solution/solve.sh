#!/bin/sh
sed '1!G;h;$!d' "$LIST" >reversed.txt

#!/bin/sh
echo "not done yet"

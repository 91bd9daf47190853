#!/bin/bash
echo rain >weather.txt

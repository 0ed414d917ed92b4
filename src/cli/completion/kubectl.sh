#!/bin/sh
# Completion of `kubectl ganglion`: kubectl 1.26 or later runs this program if it is in the PATH, with the words after
# `ganglion`, and reads candidates and a directive from its output.
exec kubectl-ganglion __complete "$@" 2>/dev/null

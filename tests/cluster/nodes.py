#!/usr/bin/env python3
"""Runs the tests of several files here over one cluster: tests/cluster/nodes.py job_test monitors_test."""

import sys

import installed

if __name__ == "__main__":
    installed.main(*sys.argv[1:])

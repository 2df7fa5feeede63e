#!/usr/bin/env python3
"""Runs the tests of several files here over one cluster: tests/cluster/nodes.py [--operators-killed] job_test monitors_test."""

import argparse

import installed

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("modules", nargs="+")
    parser.add_argument("--operators-killed", action="store_true", help="the operators die at random moments meanwhile")
    arguments = parser.parse_args()
    installed.main(*arguments.modules, operators_killed=arguments.operators_killed)

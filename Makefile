# Each target sets itself up in .venv; `make` alone lists them.
SHELL := /bin/sh
.DEFAULT_GOAL := help
PYTHON_IN := .venv/bin/python

.PHONY: help venv

help: ## this list
	@sed -n 's/^\([a-z][a-z-]*\):.*## \(.*\)/\1|\2/p' Makefile | awk -F'|' '{ printf "make %-14s %s\n", $$1, $$2 }'

venv: .venv/.made ## the virtual environment .venv, from pinned and hashed packages

.venv/.made: pyproject.toml requirements/build.lock requirements/dev.lock tools/make_venv.sh
	@tools/make_venv.sh .venv requirements/dev.lock
	@touch $@

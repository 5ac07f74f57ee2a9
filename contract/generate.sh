#!/usr/bin/env bash
# Writes the contract's schema and Python's models from the Rust types: contract/generate.sh [FOLDER]
# Without FOLDER it renews the committed files; the staleness test gives one and compares.
set -euo pipefail
cd "$(dirname "$0")/.."
schema=${1:+$1/agent.schema.json}
models=${1:+$1/models.py}
schema=${schema:-contract/agent.schema.json}
models=${models:-python/leadline/contract/models.py}
cargo run --quiet --package leadline-wire --example schema > "$schema.new"
mv "$schema.new" "$schema"
"${PYTHON:-.venv/bin/python}" -W ignore::UserWarning -m datamodel_code_generator \
  --input "$schema" --input-file-type jsonschema --output "$models" \
  --output-model-type pydantic_v2.BaseModel --target-python-version 3.11 --extra-fields forbid \
  --use-title-as-name --use-schema-description --use-field-description --use-union-operator --use-standard-collections \
  --collapse-root-models --enum-field-as-literal all --use-one-literal-as-default --use-annotated \
  --formatters ruff-format --disable-timestamp
# Formatted by this project's settings wherever the file lies.
"${PYTHON:-.venv/bin/python}" -m ruff format --quiet --config pyproject.toml "$models"

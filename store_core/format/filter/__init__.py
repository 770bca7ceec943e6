# SPDX-License-Identifier: Apache-2.0
"""Which messages a consumer wants: tags, and the language SQL92."""

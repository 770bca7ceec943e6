# SPDX-License-Identifier: Apache-2.0
"""Writers that are killed, a thousand times each."""

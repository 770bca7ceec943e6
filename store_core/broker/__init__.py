# SPDX-License-Identifier: Apache-2.0
"""What a broker does with a store that it serves: which message a consumer gets, and what is kept of its consumers."""

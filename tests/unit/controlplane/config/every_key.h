// SPDX-License-Identifier: Apache-2.0
//
// Shared by tests of the configuration.
#pragma once

namespace sluice::lab {

/// A configuration whose description has every key, including those without a default.
inline constexpr const char* kEveryKey =
    "[reactor]\ncpus = [1]\n[device]\nvlan = 3\n[[client_class]]\nname = \"a\"\nclients = [\"10.0.0.0/8\"]\n"
    "[[host_authentication.host]]\nname = \"h\"\nkey_files = [\"/k\"]\n"
    "[[export]]\npath = \"/export\"\n"
    "[[upstream]]\nname = \"u\"\naddress = \"192.0.2.1\"\nprograms = [\"nfs4\"]\n";

}  // namespace sluice::lab

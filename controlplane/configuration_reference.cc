// SPDX-License-Identifier: Apache-2.0
//
// sluice-configuration-reference: prints the reference of all keys, which the build installs as
// configuration-keys.md.
#include <iostream>

#include "controlplane/config/keys.h"

int main() {
  std::cout << sluice::config::keys_reference();
}

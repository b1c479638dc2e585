// SPDX-License-Identifier: Apache-2.0
//
// sluice-admin-reference: prints the reference of all methods, which the build installs as
// json-rpc-methods.md.
#include <iostream>

#include "controlplane/admin/reference.h"

int main() {
  std::cout << sluice::admin::reference();
}

// SPDX-License-Identifier: Apache-2.0
//
// sluice-admin-reference: prints deploy/docs/json-rpc.md.
#include <iostream>

#include "controlplane/admin/reference.h"

int main() {
  std::cout << sluice::admin::reference();
}

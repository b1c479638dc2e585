// SPDX-License-Identifier: Apache-2.0
//
// Main program of the NFSv3 tests. Calls are made directly to the owner of the files, or with --over=v1 or
// --over=v2 over that version of RPC-over-RDMA, or with --by-reader to a reader in another reactor.
#include <cstdio>
#include <string_view>

#include "tests/unit/service/memory/nfs3_client.h"

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (argument == "--over=v1") {
      sluice::service::test::call_over_version(1);
    } else if (argument == "--over=v2") {
      sluice::service::test::call_over_version(2);
    } else if (argument == "--by-reader") {
      sluice::service::test::call_by_reader();
    } else {
      std::fprintf(stderr, "Unknown argument '%s': there are --over=v1, --over=v2 and --by-reader.\n",
                   argv[i]);
      return 2;
    }
  }
  return RUN_ALL_TESTS();
}

// SPDX-License-Identifier: Apache-2.0
//
// XDR encoding and decoding of NFSv3 and NFSACL for the client of the tests (RFC 1813, section 2).
#pragma once

#include <optional>
#include <vector>

#include "tests/unit/service/memory/nfs3_client.h"

namespace sluice::service::test {

inline constexpr std::uint64_t kBillion = 1'000'000'000;

std::optional<Attr> take_post_op_attr(xdr::Reader& in);
std::vector<AclEntry> take_acl(xdr::Reader& in);

void put_time(xdr::Writer& out, std::uint64_t ns);
void put_set(xdr::Writer& out, const Set& set);
void put_acl(xdr::Writer& out, const std::vector<AclEntry>& acl);

}  // namespace sluice::service::test

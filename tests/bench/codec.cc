// SPDX-License-Identifier: Apache-2.0
//
// Time to decode a version 1 transport header with Sluice's codec and with rpcgen's.
#include <rpc/rpc.h>

#include <cstdlib>
#include <functional>

#include "dataplane/rpcrdma/wire/v1.h"
#include "rpcrdma_v1.h"
#include "tests/bench/worker.h"
#include "tests/golden/v1_vectors.h"

namespace sluice::bench {
namespace {

std::vector<std::byte> read_chunk_call() {
  // Worked example E2 with its first segment only: a call with one Read chunk.
  std::vector<std::byte> bytes(std::size(golden::kE2) * 4);
  for (std::size_t i = 0; i < std::size(golden::kE2); ++i)
    xdr::store_u32(bytes.data() + i * 4, golden::kE2[i]);
  bytes.erase(bytes.begin() + 40, bytes.begin() + 64);
  return bytes;
}

/// Returns nanoseconds per call of `work`.
double ns_each(double seconds, const std::function<void()>& work) {
  const std::uint64_t begin = thread_ns();
  std::uint64_t now = begin;
  std::uint64_t rounds = 0;
  for (; static_cast<double>(now - begin) < seconds * 1e9; now = thread_ns(), ++rounds) work();
  return static_cast<double>(now - begin) / static_cast<double>(rounds);
}

constexpr int kBatch = 1000;

double decode_ns(double seconds) {
  pin(kServerCpu);
  const auto message = read_chunk_call();
  std::uint32_t sink = 0;
  const double ns = ns_each(seconds, [&] {
    for (int i = 0; i < kBatch; ++i) {
      const std::byte* at = message.data();
      asm volatile("" : "+r"(at));  // keeps the decoding inside the loop
      const auto decoded = rpcrdma::v1::decode({at, message.size()});
      sink += decoded.header.chunks.reads[0].target.length + static_cast<std::uint32_t>(decoded.status);
    }
  });
  asm volatile("" : : "r"(sink));
  return ns / kBatch;
}

double rpcgen_decode_ns(double seconds) {
  pin(kServerCpu);
  auto message = read_chunk_call();
  const double ns = ns_each(seconds, [&] {
    for (int i = 0; i < kBatch; ++i) {
      XDR xdrs;
      rv1_message decoded{};
      xdrmem_create(&xdrs, reinterpret_cast<char*>(message.data()), static_cast<u_int>(message.size()),
                    XDR_DECODE);
      if (!xdr_rv1_message(&xdrs, &decoded)) std::abort();
      xdr_free(reinterpret_cast<xdrproc_t>(reinterpret_cast<void (*)()>(&xdr_rv1_message)), &decoded);
    }
  });
  return ns / kBatch;
}

constexpr Side kSides[] = {{"decode_ns", decode_ns}, {"rpcgen_decode_ns", rpcgen_decode_ns}};

}  // namespace
}  // namespace sluice::bench

int main() {
  return sluice::bench::serve(sluice::bench::kSides);
}

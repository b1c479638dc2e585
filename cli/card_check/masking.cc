// SPDX-License-Identifier: Apache-2.0
#include "cli/card_check/masking.h"

#include <arpa/inet.h>
#include <sys/random.h>

#include <algorithm>
#include <cctype>
#include <cstdio>

#include "dataplane/base/setup_error.h"

namespace sluice::card_check {
namespace {

std::string lower(std::string_view text) {
  std::string result(text);
  for (char& c : result) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return result;
}

/// Returns the bytes in hexadecimal, with a separator after each group of `group` bytes.
std::string hexadecimal(std::span<const std::uint8_t> bytes, std::size_t group, const char* separator) {
  std::string text;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    char digits[3];
    std::snprintf(digits, sizeof digits, "%02x", bytes[i]);
    if (i > 0 && i % group == 0) text += separator;
    text += digits;
  }
  return text;
}

/// A digit before or behind a form belongs to another address: 192.0.2.1 is not a part of 192.0.2.12. Letters
/// are not checked, because the name of an interface may contain its MAC address.
bool is_whole(std::string_view text, std::size_t at, std::size_t length) {
  const auto digit = [&](std::size_t i) { return std::isdigit(static_cast<unsigned char>(text[i])) != 0; };
  const bool begins = at == 0 || !(digit(at) && digit(at - 1));
  const std::size_t end = at + length;
  return begins && (end == text.size() || !(digit(end - 1) && digit(end)));
}

}  // namespace

std::vector<std::string> forms_of_gid(const Gid& gid) {
  std::vector<std::string> forms{hexadecimal(gid, 2, ":"), hexadecimal(gid, gid.size(), "")};
  char text[INET6_ADDRSTRLEN];
  if (::inet_ntop(AF_INET6, gid.data(), text, sizeof text) != nullptr) forms.emplace_back(text);
  constexpr std::uint8_t kMapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
  if (std::equal(std::begin(kMapped), std::end(kMapped), gid.begin()) &&
      ::inet_ntop(AF_INET, gid.data() + 12, text, sizeof text) != nullptr)
    forms.emplace_back(text);
  return forms;
}

std::vector<std::string> forms_of_guid(std::uint64_t guid) {
  std::uint8_t bytes[8];
  for (std::size_t i = 0; i < sizeof bytes; ++i) bytes[i] = static_cast<std::uint8_t>(guid >> (56 - 8 * i));
  return {hexadecimal(bytes, 2, ":"), hexadecimal(bytes, 1, ":"), hexadecimal(bytes, sizeof bytes, "")};
}

std::vector<std::string> forms_of_mac(std::span<const std::uint8_t, 6> mac) {
  return {hexadecimal(mac, 1, ":"), hexadecimal(mac, 1, "-"), hexadecimal(mac, mac.size(), "")};
}

Masking::Masking() {
  if (::getrandom(key_.data(), key_.size(), 0) != static_cast<ssize_t>(key_.size()))
    throw SetupError("The system provides no random numbers, so addresses cannot be hidden.");
}

void Masking::add(std::span<const std::string> forms) {
  if (forms.empty()) return;
  const std::string first = lower(forms[0]);
  char replacement[32];
  std::snprintf(replacement, sizeof replacement, "<%016llx>",
                static_cast<unsigned long long>(siphash(key_, std::as_bytes(std::span(first)))));
  for (const std::string& form : forms)
    if (!form.empty()) forms_.push_back({lower(form), replacement});
  std::stable_sort(forms_.begin(), forms_.end(),
                   [](const Form& a, const Form& b) { return a.text.size() > b.text.size(); });
}

std::string Masking::masked_text(std::string_view text) const {
  std::string result;
  const std::string small = lower(text);
  for (std::size_t at = 0; at < text.size();) {
    const Form* found = nullptr;
    for (const Form& form : forms_)
      if (small.compare(at, form.text.size(), form.text) == 0 && is_whole(small, at, form.text.size())) {
        found = &form;
        break;
      }
    result += found != nullptr ? found->replacement : std::string(1, text[at]);
    at += found != nullptr ? found->text.size() : 1;
  }
  return result;
}

Json Masking::masked(const Json& value) const {
  if (value.is_string()) return masked_text(value.get<std::string>());
  if (value.is_array()) {
    Json result = Json::array();
    for (const Json& element : value) result.push_back(masked(element));
    return result;
  }
  if (!value.is_object()) return value;
  Json result = Json::object();
  for (const auto& [name, member] : value.items()) result[masked_text(name)] = masked(member);
  return result;
}

}  // namespace sluice::card_check

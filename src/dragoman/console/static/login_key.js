// The key that this page sends in addition to its cookie. Browsers send a cookie to all ports of a host,
// so another server on this machine may receive it. Storage belongs to one port only.
const NAME = "dragoman-key";

export function loginKey() {
  return localStorage.getItem(NAME) ?? "";
}

export function storeLoginKey(key) {
  localStorage.setItem(NAME, key);
}

// ---- the vector of a word, as attncli draws it: NumPy's PCG64, seeded with BLAKE2b of seed and word
const wrapped = x => BigInt.asUintN(64, x);
const turned = (x, by) => (x >> by) | (x << (64n - by)); // to the right, with more digits at the left

const START = [
  0x6a09e667f3bcc908n, 0xbb67ae8584caa73bn, 0x3c6ef372fe94f82bn, 0xa54ff53a5f1d36f1n,
  0x510e527fade682d1n, 0x9b05688c2b3e6c1fn, 0x1f83d9abfb41bd6bn, 0x5be0cd19137e2179n,
];
const ORDERS = ( // of the 16 words of a block, round by round
  "0123456789abcdef ea489fd61c02b753 b8c052fdae367194 7931dcbe265a40f8 905724afe1bc683d " +
  "2c6a0b834d75fe19 c51fed4a0763928b db7ec13950f4862a 6fe9b308c2d714a5 a2847615fb9e3cd0"
).split(" ");

// BLAKE2b of 16 bytes, without a key (RFC 7693).
function blake2b(bytes) {
  let hash = [START[0] ^ 0x01010010n, ...START.slice(1)];
  for (let start = 0; start === 0 || start < bytes.length; start += 128) {
    const block = new Uint8Array(128), end = Math.min(start + 128, bytes.length);
    block.set(bytes.subarray(start, end));
    const words = new BigUint64Array(block.buffer), v = BigUint64Array.of(...hash, ...START);
    v[12] ^= BigInt(end);
    if (end === bytes.length) v[14] = ~v[14];
    for (let round = 0; round < 12; round++)
      for (let step = 0; step < 8; step++) {
        const [a, b, c, d] = [0, 1, 2, 3].map(row => 4 * row + ((step + (step > 3 ? row : 0)) % 4));
        [[32n, 24n], [16n, 63n]].forEach(([far, near], half) => {
          v[a] += v[b] + words[parseInt(ORDERS[round % 10][2 * step + half], 16)];
          v[d] = turned(v[d] ^ v[a], far);
          v[c] += v[d];
          v[b] = turned(v[b] ^ v[c], near);
        });
      }
    hash = hash.map((x, at) => x ^ v[at] ^ v[at + 8]);
  }
  return new DataView(BigUint64Array.from(hash.slice(0, 2)).buffer);
}

// NumPy's SeedSequence: 128 bits are mixed, and give 256, as four numbers.
function seedSequence(digest) {
  const stir = (constant, factor) => x => {
    x ^= constant;
    constant = Math.imul(constant, factor);
    x = Math.imul(x, constant);
    return x ^ (x >>> 16);
  };
  const first = stir(0x43b0d7e5, 0x931e8875), second = stir(0x8b51f9dd, 0x58f38ded);
  const pool = [12, 8, 4, 0].map(at => first(digest.getUint32(at)));
  for (const from of range(4))
    for (const to of range(4).filter(to => to !== from)) {
      const x = Math.imul(0xca01f9dd, pool[to]) - Math.imul(0x4973f715, first(pool[from]));
      pool[to] = x ^ (x >>> 16);
    }
  return [...new BigUint64Array(Uint32Array.from(range(8), at => second(pool[at % 4])).buffer)];
}

// Numbers from −1 to 1, drawn by PCG64 (O'Neill 2014, XSL-RR of 128 bits).
function randomVector(word, width, seed) {
  const [high, low, highOdd, lowOdd] = seedSequence(blake2b(new TextEncoder().encode(`${seed}:${word.normalize("NFC")}`)));
  const odd = (((highOdd << 64n) | lowOdd) << 1n) | 1n, next = x => BigInt.asUintN(128, x * 0x2360ed051fc65da44385df649fccf645n + odd);
  let x = next(BigInt.asUintN(128, odd) + ((high << 64n) | low));
  return range(width).map(() => {
    x = next(x);
    return 2 * (Number(wrapped(turned(wrapped((x >> 64n) ^ x), x >> 122n)) >> 11n) / 2 ** 53) - 1;
  });
}

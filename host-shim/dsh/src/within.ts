/** What work comes to, unless it takes too long. Work that has been given up may still go on. */
export async function within<T>(ms: number, work: () => Promise<T>, otherwise: Error): Promise<T> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(otherwise), ms).unref();
  });
  try {
    return await Promise.race([work(), late]);
  } finally {
    clearTimeout(timer);
  }
}

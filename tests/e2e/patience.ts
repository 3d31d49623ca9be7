/** How long anything may take before a test gives up on it: a machine under load is slow, not wrong. */
export const PATIENCE_MS = 120_000;
